package document

// Diagram pictures what is compared: for each series a row of boxes. It has no rows where
// nothing is pictured.
type Diagram struct {
	Title  string
	Marked string // what boxes of kind nested are, empty if there are none
	Notes  []string
	Rows   []DiagramRow
}

// DiagramRow is one series in a diagram.
type DiagramRow struct {
	Series, Value, Badge string
	Frames               []Frame
}

// Frame holds boxes that belong together.
type Frame struct {
	Name, Note string
	Boxes      []Box
}

// Box is a part of what is pictured.
type Box struct {
	Name string
	Kind string // end, host, vm or nested: its colour
}
