package sqlite

import (
	"context"
	"database/sql"
	"fmt"
)

// The statements of this package, by the connections that run them.
var (
	readStatements = []string{
		selectTenant, selectTenantID, listTenants, selectProject, listProjects,
		selectDueDeletions, countObjects, countTenants, selectKey, listKeys, listKeysOfProject, selectDueKeys, selectNonces,
		selectKeyName, listAliases, listAliasesOfKey, selectAliasRevision,
		selectCredentialForAuthentication, selectCredential, listCredentials,
		selectApproval, listApprovals, selectNodeSetting, listNodeSettings,
		selectNewestPolicy, selectPolicy, listPolicies, listJournalHeads, selectWebhook, listWebhooks,
		selectRequestRecord, selectAnyRequestRecord,
		selectShipped, listShipped, selectLastOrder, newestAuditEntries, newestAuditEntriesOfAll, arrivedAuditEntries, arrivedAuditEntriesOfAll, arrivedOfOp,
		auditEntriesOfRequest, auditEntriesOfAnyRequest, auditEntriesAt, anyAuditEntriesAt, selectUsage, selectUsageOfAll,
		selectProviderSecret, selectProviderSecretID, listProviderSecrets, selectDueProviderSecrets,
		selectSecretRevision, selectSecretChanges, selectSecretOutcomes,
		selectRoute, listRoutes, selectRouteHealth, selectRouteEnd, selectEndpoints,
		selectJob, selectJobByClaim, listJobs, jobProgress, selectDueJobs, selectExpiredJobs,
		selectJobChunk, selectJobChunkOf, selectDueJobChunks, selectComputedChunks,
		selectBaseline,
		selectCostIncident, listCostIncidents, selectCostLift,
		selectSystemSecrets, selectRowAuthentication,
	}
	writeStatements = []string{
		insertTenant, updateTenant, insertProject,
		insertKey, updateKey, touchKey, insertVersion, updateVersion, updateNonces,
		insertKeyName, selectLiveKey, upsertAlias, deleteAlias, putAliasRevision, deleteNamesOfKey,
		insertCredential, updateCredential, touchCredential, deleteSecrets, insertSecret,
		insertApproval, updateApproval, deleteExpiredApprovals, insertNodeSetting, updateNodeSetting, insertPolicy, putJournalHead,
		insertWebhook, updateWebhook, deleteWebhook, noteTaken, noteFailed,
		insertDelivery, dropDeliveries, claimDeliveries, retryDelivery, endDelivery, deleteDelivery, deleteEndedDeliveries,
		insertProviderSecret, updateProviderSecret, insertProviderVersion, deleteProviderVersion,
		putSecretRevision, insertSecretChange, dropSecretChanges, deleteSecretChanges, addSecretOutcome, deleteSecretOutcomes,
		insertRoute, updateRoute, deleteRoute, insertRouteHealth, updateRouteHealth, deleteRouteHealth, putRouteEnd,
		wantEndpoints, claimEndpoints, endProbe, deleteEndpoints,
		insertJob, updateJob, delayJob, deleteJobChunks, deleteJob, touchJob, insertJobChunk, updateJobChunk, renewJobChunk, releaseJobChunks,
		putBaseline,
		insertCostIncident, dropCostIncidents, deleteCostIncidents, putCostLift,
		insertSystemSecret,
		sealTenant, sealProject, sealKey, sealVersion, sealNonces, sealKeyName, sealCredential, sealRowAuthentication,
		insertClaim, selectClaim, finishClaim, deleteClaim, deleteExpiredClaims,
		insertRequestRecord, deleteExpiredRecords,
		insertShipped, advanceShipped, insertAuditEntry, addUsage, deleteAuditEntries, deleteUsage,
	}
)

// prepare prepares all statements, which also checks them against the schema.
// They are closed with their connections.
func (db *DB) prepare(ctx context.Context) error {
	for pool, statements := range map[*sql.DB][]string{db.reader: readStatements, db.writer: writeStatements} {
		for _, statement := range statements {
			var err error
			if db.prepared[statement], err = pool.PrepareContext(ctx, statement); err != nil {
				return fmt.Errorf("sqlite: prepare: %w", err)
			}
		}
	}
	return nil
}

// row runs a reading statement that has one row at most.
func (db *DB) row(ctx context.Context, statement string, args ...any) *sql.Row {
	return db.prepared[statement].QueryRowContext(ctx, args...)
}

// list runs a reading statement; scan is called for each row.
func (db *DB) list(ctx context.Context, scan func(*sql.Rows) error, statement string, args ...any) error {
	rows, err := db.prepared[statement].QueryContext(ctx, args...)
	if err != nil {
		return db.translate(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return db.translate(err)
		}
	}
	return db.translate(rows.Err())
}

// transaction runs writing statements.
type transaction struct {
	db *DB
	tx *sql.Tx
}

// write runs f in a transaction, alone. When it returns nil the transaction
// is on the disk.
func (db *DB) write(ctx context.Context, f func(transaction) error) error {
	select {
	case <-db.failed:
		return errFailed
	default:
	}
	tx, err := db.writer.BeginTx(ctx, nil)
	if err != nil {
		return db.translate(err)
	}
	if err := f(transaction{db, tx}); err != nil {
		// The first error tells what happened; a rollback that fails too is
		// made up for by database/sql, which drops the connection.
		_ = tx.Rollback()
		return db.translate(err)
	}
	return db.translate(tx.Commit())
}

func (t transaction) statement(ctx context.Context, statement string) *sql.Stmt {
	return t.tx.StmtContext(ctx, t.db.prepared[statement])
}

// exec returns the number of rows that the statement met.
func (t transaction) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	result, err := t.statement(ctx, statement).ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// execOne runs a statement that must meet a row; otherwise it returns none.
func (t transaction) execOne(ctx context.Context, none error, statement string, args ...any) error {
	n, err := t.exec(ctx, statement, args...)
	if err == nil && n == 0 {
		return none
	}
	return err
}
