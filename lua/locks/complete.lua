#!lua flags=allow-oom
-- Acknowledge items for their holders with results for their publishers; `next` as in `retract`.
-- ARGV: now revision frontend number retry | sender subids owner item token request result next
-- RETURNS: ok stale gone deleted | ok(holder [collection subid]) replayed(holder) item-not-found forbidden locked-by-another lock-lost
--   received(outcome@complete items@receive) lease-over
local refusal = partition.load()
if refusal then return refusal end
replay_cache.rotate()

local results = ack_rules.end_locks(rows, function(row) lock_end.acknowledge(row.flight, row.result) end)
return respond.make(results, call.lock_end_freed, function() return receiving.add_next(rows, results) end)
