package scheduler

// notYet names the examples and kinds of rules whose plans are known to be wrong. A test fails if
// one of them is right.
var notYet = map[string]bool{}
