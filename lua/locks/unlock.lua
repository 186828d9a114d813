#!lua flags=allow-oom
-- Release items for their holders, at once, after a delay, or to the dead letters, and hand them to others; with `untried` the attempt
-- does not count.
-- ARGV: now revision frontend number retry | sender subids owner item token request delay_ms reason dead_letter untried
-- RETURNS: ok stale gone deleted | ok(holder [collection subid]) replayed(holder) item-not-found forbidden locked-by-another lock-lost
local refusal = partition.load()
if refusal then return refusal end
replay_cache.rotate()

local results = ack_rules.end_locks(rows, function(row)
  lock_end.release(row.flight, 'released',
    {delay_ms = tonumber(row.delay_ms), reason = row.reason, dead_letter = row.dead_letter == '1', untried = row.untried == '1'})
end)
return respond.make(results, call.lock_end_freed)
