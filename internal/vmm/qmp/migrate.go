package qmp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// stateFD is the name of the descriptor that a migration writes or reads.
const stateFD = "migration"

// SaveState writes the state of a stopped machine to f, without the memory that other
// processes can map (capability x-ignore-shared). QEMU can only quit after that.
func (c *Client) SaveState(ctx context.Context, f *os.File) error {
	if err := c.migrate(ctx, "migrate", f); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

// LoadState reads the state that SaveState has written into a QEMU that was started
// with -incoming defer and has the memory.
func (c *Client) LoadState(ctx context.Context, f *os.File) error {
	if err := c.migrate(ctx, "migrate-incoming", f); err != nil {
		return fmt.Errorf("load state: %w", err)
	}
	return nil
}

func (c *Client) migrate(ctx context.Context, command string, f *os.File) error {
	type capability struct {
		Name  string `json:"capability"`
		State bool   `json:"state"`
	}
	err := c.Execute(ctx, "migrate-set-capabilities", map[string]any{
		"capabilities": []capability{{"events", true}, {"x-ignore-shared", true}},
	}, nil)
	if err == nil {
		// Announcements would tell the switch about NICs that the guest does not have yet.
		err = c.Execute(ctx, "migrate-set-parameters", map[string]any{"announce-rounds": 0, "max-bandwidth": int64(1) << 40}, nil)
	}
	if err == nil {
		err = c.SendFD(ctx, stateFD, f)
	}
	if err != nil {
		return err
	}
	events := c.Subscribe("MIGRATION")
	defer events.Close()
	if err := c.Execute(ctx, command, map[string]any{"uri": "fd:" + stateFD}, nil); err != nil {
		return err
	}
	for {
		e, err := events.Next(ctx)
		if err != nil {
			return err
		}
		var now struct{ Status string }
		if err := json.Unmarshal(e.Data, &now); err != nil {
			return err
		}
		switch now.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return c.migrationError(ctx)
		}
	}
}

func (c *Client) migrationError(ctx context.Context) error {
	var info struct {
		Status string
		Cause  string `json:"error-desc"`
	}
	if err := c.Execute(ctx, "query-migrate", nil, &info); err != nil {
		return err
	}
	return errors.New(cmp.Or(info.Cause, "migration "+info.Status))
}

// Stop stops the machine and returns the time since which its clocks stand still.
func (c *Client) Stop(ctx context.Context) (time.Time, error) { return c.timed(ctx, "stop", "STOP") }

// Cont lets a stopped machine run and returns the time since which its clocks run.
func (c *Client) Cont(ctx context.Context) (time.Time, error) { return c.timed(ctx, "cont", "RESUME") }

// timed runs a command and returns the time of the event that it causes.
func (c *Client) timed(ctx context.Context, command, event string) (time.Time, error) {
	events := c.Subscribe(event)
	defer events.Close()
	if err := c.Execute(ctx, command, nil, nil); err != nil {
		return time.Time{}, err
	}
	e, err := events.Next(ctx)
	return e.Time, err
}
