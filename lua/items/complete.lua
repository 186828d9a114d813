#!lua flags=allow-oom
-- Acknowledge items for their holders with results for their publishers.
-- ARGV: now revision frontend sent number retry | sender subids owner item token request result
-- RETURNS: ok stale gone deleted | ok replayed item-not-found forbidden locked-by-another lock-lost
local refusal = partition.load()
if refusal then return refusal end
replay_cache.rotate()

local results = ack_rules.each(rows, function(row, verdict)
  partition_owner.renew_when_seen(row.subids)
  if verdict == 'held' then
    lock_end.acknowledge(row.flight, row.result)
    replay_cache.give(row, row.flight.jid)
    return {'ok', row.flight.jid, pools.describe(row.flight.subid)}
  elseif verdict == 'replayed' then
    return {'replayed', row.answered}
  elseif verdict == 'waiting' then
    return {'lock-lost'}
  end
  return {verdict}
end)
return respond.make(results, {}, call.lock_end_freed)
