package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

// Settings of nodes are the operators', of no tenant, and as few as nodes.
const (
	nodeSettingColumns = `node, mode, changed, revision, mac, mac_version`

	selectNodeSetting = `SELECT ` + nodeSettingColumns + ` FROM node_settings WHERE node = $1`
	listNodeSettings  = `SELECT ` + nodeSettingColumns + ` FROM node_settings ORDER BY node`
	insertNodeSetting = `INSERT INTO node_settings (` + nodeSettingColumns + `) VALUES ($1, $2, $3, $4, $5, $6)`
	updateNodeSetting = `UPDATE node_settings SET mode = $3, changed = $4, revision = $5, mac = $6, mac_version = $7
		WHERE node = $1 AND revision = $2`
)

func nodeSettingTargets(r *keystore.NodeSettingRow) []any {
	return []any{&r.Node, &r.Mode, timeColumn{&r.Changed}, &r.Revision, &r.Code.MAC, &r.Code.Version}
}

// NodeSetting implements keystore.NodeSettingDriver.
func (db *DB) NodeSetting(ctx context.Context, p keystore.NodeSettingParams) (*keystore.NodeSettingRow, error) {
	var r keystore.NodeSettingRow
	return &r, db.row(ctx, everybody, nodeSettingTargets(&r), selectNodeSetting, p.Node)
}

// ListNodeSettings implements keystore.NodeSettingDriver.
func (db *DB) ListNodeSettings(ctx context.Context) (all []*keystore.NodeSettingRow, err error) {
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		r := new(keystore.NodeSettingRow)
		all = append(all, r)
		return rows.Scan(nodeSettingTargets(r)...)
	}, listNodeSettings)
	return all, err
}

// InsertNodeSetting implements keystore.NodeSettingDriver.
func (db *DB) InsertNodeSetting(ctx context.Context, p keystore.InsertNodeSettingParams) error {
	n := &p.Setting
	return db.write(ctx, everybody, func(tx transaction) error {
		_, err := tx.exec(ctx, insertNodeSetting, n.Node, n.Mode, moment(n.Changed), n.Revision, n.Code.MAC, codeVersion(n.Code))
		return err
	})
}

// UpdateNodeSetting implements keystore.NodeSettingDriver.
func (db *DB) UpdateNodeSetting(ctx context.Context, p keystore.UpdateNodeSettingParams) error {
	n := &p.Setting
	return db.write(ctx, everybody, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, updateNodeSetting, n.Node, n.Revision-1, n.Mode, moment(n.Changed), n.Revision,
			n.Code.MAC, codeVersion(n.Code))
	})
}
