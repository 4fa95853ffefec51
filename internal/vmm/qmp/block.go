package qmp

import (
	"context"
	"fmt"
)

// BlockDrive is a drive of the guest.
type BlockDrive struct {
	TrayOpen bool
	Medium   string // name of the block node in the drive; "": empty
}

// BlockDrive returns the drive of the device with an ID. ok is false if there is none.
func (c *Client) BlockDrive(ctx context.Context, id string) (d BlockDrive, ok bool, err error) {
	var all []struct {
		QDev     string `json:"qdev"`
		TrayOpen bool   `json:"tray_open"`
		Inserted struct {
			Node string `json:"node-name"`
		} `json:"inserted"`
	}
	if err := c.Execute(ctx, "query-block", nil, &all); err != nil {
		return d, false, fmt.Errorf("list drives: %w", err)
	}
	for _, b := range all {
		if b.QDev == id {
			return BlockDrive{b.TrayOpen, b.Inserted.Node}, true, nil
		}
	}
	return d, false, nil
}

// BlockNodes lists the names of the block nodes.
func (c *Client) BlockNodes(ctx context.Context) ([]string, error) {
	var found []struct {
		Node string `json:"node-name"`
	}
	if err := c.Execute(ctx, "query-named-block-nodes", map[string]any{"flat": true}, &found); err != nil {
		return nil, fmt.Errorf("list block nodes: %w", err)
	}
	var all []string
	for _, f := range found {
		all = append(all, f.Node)
	}
	return all, nil
}

// OpenTray opens the tray of a drive, also one that the guest has locked, and CloseTray
// closes it.
func (c *Client) OpenTray(ctx context.Context, id string) error {
	return c.Execute(ctx, "blockdev-open-tray", map[string]any{"id": id, "force": true}, nil)
}

// CloseTray closes the tray of a drive.
func (c *Client) CloseTray(ctx context.Context, id string) error {
	return c.Execute(ctx, "blockdev-close-tray", map[string]any{"id": id}, nil)
}
