package trace

import (
	"strings"
	"testing"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/use"
)

// webPod requests 1 vCPU and 1 GiB for the container c, for the Deployment web.
const webPod = `{"kind":"Pod","metadata":{"name":"web-1-a","namespace":"shop","labels":{"pod-template-hash":"1"},"ownerReferences":[{"kind":"ReplicaSet","name":"web-1","controller":true}]},
"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}]}}`

// sized returns what the container requests by the use in texts, each of a format.
func sized(t *testing.T, texts ...[2]string) (cluster.Resources, error) {
	t.Helper()
	users, _, err := readText(t, listJSON(webPod), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var u use.Use
	for _, text := range texts {
		if err := ReadUse(t.Context(), text[0], "-", strings.NewReader(text[1]), &u); err != nil {
			return cluster.Resources{}, err
		}
	}
	return use.New(&u, users[0].Pods, nil, 0).User(users[0]).Pods[0].Containers[0].Request, nil
}

// Documents as the tools print them: the body that kubectl top -v=9 shows, the same as objects
// of kubectl get, kubectl top itself, the HTTP API of Prometheus and promtool, and the status of a
// VerticalPodAutoscaler.
const (
	metricsList = `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[{"metadata":{"name":"web-1-a","namespace":"shop","creationTimestamp":"2026-11-22T10:00:15Z","labels":{"app":"web"}},
"timestamp":"2026-11-22T10:00:02Z","window":"15.3s","containers":[{"name":"c","usage":{"cpu":"200000001n","memory":"524288Ki"}}]}]}`
	metricsObjects = `{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[{"apiVersion":"metrics.k8s.io/v1beta1","kind":"PodMetrics","metadata":{"name":"web-1-a","namespace":"shop"},
"timestamp":"2026-11-22T10:00:02Z","window":"15.3s","containers":[{"name":"c","usage":{"cpu":"200m","memory":"512Mi"}}]}]}`
	topText = "NAMESPACE   POD       NAME   CPU(cores)   MEMORY(bytes)   \nshop        web-1-a   c      200m         512Mi           \n"
	ranges  = `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"container":"c","namespace":"shop","pod":"web-1-a"},"values":[[1763800000,"0.1"],[1763800300.5,"0.2"],[1763800600,"NaN"]]},
{"metric":{"namespace":"shop","pod":"web-1-a"},"values":[[1763800000,"9"]]},{"metric":{"container":"POD","namespace":"shop","pod":"web-1-a"},"values":[[1763800000,"9"]]}]}}`
	instant = `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"container_memory_working_set_bytes","container":"c","namespace":"shop","pod":"web-1-a"},"value":[1763800000,"5.36870912e+08"]}]}}`
	bare    = `[{"metric":{"container":"c","namespace":"shop","pod":"web-1-a"},"values":[[1763800000,"0.2"]]}]`
	advice  = `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"autoscaling.k8s.io/v1","kind":"VerticalPodAutoscaler","metadata":{"name":"web-vpa","namespace":"shop"},
"spec":{"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"},"updatePolicy":{"updateMode":"Off"}},"status":{"conditions":[{"status":"True","type":"RecommendationProvided"}],
"recommendation":{"containerRecommendations":[{"containerName":"c","lowerBound":{"cpu":"25m","memory":"262144k"},"target":{"cpu":"200m","memory":"512Mi"},"uncappedTarget":{"cpu":"2","memory":"9Gi"},"upperBound":{"cpu":"4","memory":"9Gi"}}]}}},
{"kind":"VerticalPodAutoscaler","metadata":{"name":"new","namespace":"shop"},"spec":{"targetRef":{"kind":"Deployment","name":"web"}},"status":{}}]}`
)

func TestReadUse(t *testing.T) {
	for _, tt := range []struct {
		name        string
		texts       [][2]string
		cpu, memory int64 // thousandths, MiB
	}{
		{"metrics.k8s.io", [][2]string{{"metrics", metricsList}}, 201, 512},
		{"two measurements", [][2]string{{"metrics", metricsObjects + strings.Replace(metricsObjects, "512Mi", "600Mi", 1)}}, 200, 600},
		{"kubectl top", [][2]string{{"metrics", topText + "\n" + topText}}, 200, 512},
		{"a range", [][2]string{{"prometheus-cpu", ranges}}, 200, 1024},
		{"an instant", [][2]string{{"prometheus-memory", instant}}, 1000, 512},
		{"promtool", [][2]string{{"prometheus-cpu", bare}, {"prometheus-memory", instant}}, 200, 512},
		{"VPA", [][2]string{{"vpa", advice}}, 200, 512},
	} {
		got, err := sized(t, tt.texts...)
		want := cluster.Resources{CPU: tt.cpu * cluster.VCPU / 1000, Memory: tt.memory << 20}
		if err != nil || got != want {
			t.Errorf("%s: requests %s, %v; want %s", tt.name, got, err, want)
		}
	}
}

func TestUseThatCannotBeRead(t *testing.T) {
	for _, tt := range []struct{ format, text, want string }{
		{"metrics", "", "standard input: is empty"},
		{"metrics", metricsList[:200], "standard input: ends early"},
		{"metrics", "pods: 3\n", "line 1: want the columns NAMESPACE POD NAME"},
		{"metrics", strings.Replace(topText, "NAMESPACE", "", 1), "make it with kubectl top pod -A --containers"},
		{"metrics", topText + "________ ________\n", "line 3: want the columns"},
		{"metrics", strings.Replace(topText, "200m", "2x", 1), `line 2: cpu "2x"`},
		{"metrics", strings.Replace(metricsList, "200000001n", "-1", 1), "pod shop/web-1-a: container c: use is not valid: negative request"},
		{"metrics", `{"kind":"NodeMetrics","metadata":{"name":"n"}}`, "has NodeMetrics n: want PodMetrics"},
		{"vpa", metricsList, "has PodMetrics web-1-a: want VerticalPodAutoscalers"},
		{"vpa", strings.Replace(advice, `"target":{"cpu":"200m"`, `"target":{"cpu":"-1"`, 1), "container c: target is not valid"},
		{"prometheus-cpu", `{"status":"error","errorType":"bad_data","error":"parse error"}`, `is an error of Prometheus, "parse error"`},
		{"prometheus-cpu", `{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`, `result "scalar"`},
		{"prometheus-cpu", `{"status":"success","data":{"resultType":"matrix","result":[]}}`, "has no series"},
		{"prometheus-cpu", strings.Replace(instant, "working_set_bytes", "cpu_usage_seconds_total", 1), "container_memory_cpu_usage_seconds_total counts up"},
		{"prometheus-cpu", strings.ReplaceAll(bare, `"container":"c",`, ""), "lacks the label namespace, pod or container"},
		{"prometheus-cpu", strings.ReplaceAll(bare, `"container":"c",`, `"container":"c","cpu":"cpu00",`), `of the processor "cpu00" alone`},
		{"prometheus-cpu", strings.Replace(bare, `"0.2"`, `"-1"`, 1), `sample "-1": want a number from 0 to 1000000`},
		{"prometheus-cpu", strings.Replace(bare, `"0.2"`, `0.2`, 1), "want a number in quotes"},
		{"prometheus-memory", "nothing", "not JSON of Prometheus"},
		{"top", "", `unknown format "top"`},
	} {
		if _, err := sized(t, [2]string{tt.format, tt.text}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %.80q: error %v, want %q", tt.format, tt.text, err, tt.want)
		}
	}
}

// Init containers and pods with requests as a whole are known to whom right-sizes.
func TestOriginForSizing(t *testing.T) {
	users, _, err := readText(t, listJSON(`{"kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"initContainers":[{"name":"s","restartPolicy":"Always","resources":{"requests":{"cpu":"1"}}},
{"name":"i","resources":{"requests":{"cpu":"3"}}}],"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}`, podJSON("whole", "", `,"resources":{"requests":{"cpu":"2"}}`)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range users[0].Pods {
		if o := p.Origin; p.Name == "web" && (o.Startup.CPU != 4*cluster.VCPU || o.Sidecars != 1 || o.Fixed) || p.Name == "whole" && !o.Fixed {
			t.Errorf("pod %s: %+v", p.Name, o)
		}
	}
}

// No text makes reading of use panic, and what is read leads to requests that can be planned.
func FuzzReadUse(f *testing.F) {
	for _, seed := range [][2]string{{"metrics", metricsList}, {"metrics", metricsObjects}, {"metrics", topText}, {"prometheus-cpu", ranges}, {"prometheus-memory", instant}, {"prometheus-cpu", bare}, {"vpa", advice}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, format, text string) {
		var u use.Use
		if err := ReadUse(t.Context(), format, "-", strings.NewReader(text), &u); err != nil {
			return
		}
		pod := cluster.Pod{Name: "web-1-a", Origin: &cluster.Origin{Namespace: "shop", Name: "web-1-a", Kind: "Deployment", Workload: "web"}, Containers: []cluster.Container{{Name: "c"}}}
		if r := use.New(&u, []cluster.Pod{pod}, nil, 1000).User(cluster.User{Pods: []cluster.Pod{pod}}).Pods[0].Request(); r.CPU < 0 || r.Memory < 0 {
			t.Errorf("requests %s", r)
		}
	})
}
