#!lua flags=allow-oom
-- Renew the locks of held items, for the node's lock time or for `lock_ms` from now, and note that their
-- holders have begun, and how far they are.
-- ARGV: now revision number | sender subids owner item token lock_ms progress begun
-- RETURNS: ok stale gone deleted | ok(token deadline_ms) item-not-found forbidden locked-by-another lock-lost
local refusal = partition.load()
if refusal then return refusal end
local results = ack_rules.each(rows, function(row, verdict)
  partition_owner.renew_when_seen(row.subids)
  if verdict == 'waiting' then return {'lock-lost'} end
  if verdict ~= 'held' then return {verdict} end
  if references.has_ended(row.flight) then return {'lock-lost'} end
  local deadline = row.lock_ms == '' and call.partition_deadline or call.partition_now + tonumber(row.lock_ms)
  write_buffer.add('ZADD', key.lock_deadlines, string.format('%d', deadline), row.position)
  worker_deaths.forget(row.position)
  if row.begun == '1' then progress.begin(row.position) end
  if row.progress ~= '' then progress.tell(row.position, row.progress) end
  return {'ok', tonumber(row.flight.token), deadline}
end)
write_buffer.flush()
return respond.results(results, next_due.time())
