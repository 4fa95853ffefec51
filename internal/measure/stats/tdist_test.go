package stats

import "testing"

// TestCritical compares with scipy.stats.t.isf.
func TestCritical(t *testing.T) {
	for _, tc := range []struct{ alpha, df, want float64 }{
		{0.05, 5, 2.5705818356363155}, {0.05, 1, 12.706204736174705}, {0.0021, 5, 5.829211010279522},
		{1e-6, 23, 6.5926505616015065}, {0.05, 3.7, 2.8675207071911903},
	} {
		if got := tCritical(tc.alpha, tc.df); !near1(got, tc.want, 1e-12) {
			t.Errorf("alpha = %v, df = %v: %v, want %v", tc.alpha, tc.df, got, tc.want)
		}
	}
}

// TestPower compares with the noncentral t distribution of scipy.stats.nct.
func TestPower(t *testing.T) {
	for _, tc := range []struct{ ncp, alpha, df, want float64 }{
		{2, 0.05, 5, 0.3681575141383967}, {3.5, 0.05, 5, 0.7970054143967898}, {6, 0.0021, 5, 0.6014889794549737},
		{2.9, 0.05, 23, 0.793080290704486}, {2.8, 0.05, 9999, 0.7994814711613064}, {1, 0.05, 1, 0.07298889446966995},
		{4, 0.01, 2.5, 0.23014902818452176}, {0, 0.05, 5, 0.05}, {0, 0.002, 11, 0.002},
	} {
		if got := power(tc.ncp, tc.alpha, tc.df); !near(got, tc.want, 1e-5) {
			t.Errorf("ncp = %v, alpha = %v, df = %v: power %v, want %v", tc.ncp, tc.alpha, tc.df, got, tc.want)
		}
	}
	if got := noncentrality(0.05, 0.8, 5); !near1(got, 3.513902729171093, 1e-6) {
		t.Errorf("noncentrality at 5 %%, power 80 %%, df = 5: %v", got)
	}
}
