#!lua flags=allow-oom
-- Close a partition for good and list its subscribers in bounded parts. The last part frees everything but a mark, which keeps late
-- frontends from opening the partition again.
-- KEYS: meta log index replaced successors ready delayed inflight lock_deadlines locks_by_subscriber subscribers ready_subscribers idle_subscribers waiting waiters history outbox outbox_attempts outbox_items outbox_records outbox_replies replays replays_old dedupe journal confirmations retries progress replies results result_expiry awaited dependents readers readers_ready uncommitted group_heads group_of group_blocked fair_items fair_tenants fair_weights key_locks key_rates key_blocked key_due publish_rates group_epochs subscription_expiry locks_to_release selectors conditions selection_progress skipped reader_owners by_priority expirations references lent looks asking wants passed_over subids scopes schedules schedule_items
-- ARGV: scan grave_seconds
-- RETURNS: ok(scan jids)
redis.call('HSET', key.meta, 'state', 'deleted')
local found, jids = redis.call('HSCAN', key.subscribers, arg.scan, 'COUNT', 200), {}
for i = 1, #found[2], 2 do jids[#jids + 1] = subscriptions.read(found[2][i], found[2][i + 1]).jid end
if found[1] == '0' then
  for _, name in pairs(key) do redis.call('UNLINK', name) end
  redis.call('HSET', key.meta, 'state', 'deleted')
  redis.call('EXPIRE', key.meta, arg.grave_seconds)
end
return {'ok', found[1], jids}
