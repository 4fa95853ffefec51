package kubernetes

import (
	"fmt"
	"testing"
)

// A pod has the disruption budgets of its namespace whose selector matches its labels: {} matches
// all pods, and no selector matches none.
func TestBudgetsOfPods(t *testing.T) {
	d := NewDump()
	for i, spec := range []string{`{"selector":{"matchLabels":{"app":"web"}}}`, `{"selector":{}}`, `{}`, `{"selector":{"matchExpressions":[{"key":"app","operator":"NotIn","values":["web"]}]}}`} {
		if err := d.Budget(fmt.Appendf(nil, `{"metadata":{"namespace":"shop","name":"b%d"},"spec":%s,"status":{"disruptionsAllowed":%d,"expectedPods":1}}`, i, spec, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Budget([]byte(`{"metadata":{"namespace":"shop","name":"x"},"spec":{"selector":{"matchExpressions":[{"key":"app","operator":"Is"}]}}}`)); err == nil {
		t.Error("an operator that does not exist was read")
	}
	pods := map[string]*Pod{}
	for _, of := range [][2]string{{"shop", "web"}, {"shop", "db"}, {"other", "web"}} {
		p, err := ParsePod(fmt.Appendf(nil, `{"metadata":{"namespace":%q,"name":"p","labels":{"app":%q}},"spec":{"containers":[{"name":"c"}]}}`, of[0], of[1]))
		if err != nil {
			t.Fatal(err)
		}
		d.Count(p)
		d.Plan(p)
		pods[of[0]+" "+of[1]] = p
	}
	d.Finish()
	for of, want := range map[string]string{"shop web": "shop/b0 0 shop/b1 1 ", "shop db": "shop/b1 1 shop/b3 3 ", "other web": ""} {
		got := ""
		for _, b := range pods[of].Origin.Budgets {
			got += fmt.Sprint(b.Name, " ", b.Allowed, " ")
		}
		if got != want {
			t.Errorf("pods %s have the budgets %q, want %q", of, got, want)
		}
	}
}
