#!lua
-- Acknowledge items for their holders as `complete` does, and publish others with that (`publishes`, of `outbox_publishes`), all or nothing:
-- what their nodes have `refused` changes nothing. A repeat of what is done is told so, whatever refuses it now. Unlike an acknowledgement
-- alone it needs memory.
-- ARGV: now revision frontend number retry | sender subids owner item token request result publishes refused next
-- RETURNS: ok stale gone deleted | ok(holder [collection subid]) replayed(holder) refused outbox-full item-not-found forbidden locked-by-another lock-lost
--   received(outcome@complete_and_publish items@receive) lease-over
local refusal = partition.load()
if refusal then return refusal end
replay_cache.rotate()

local results = ack_rules.end_locks(rows, function(row)
  if row.refused ~= '' then return {'refused'} end
  if not outbox_publishes.has_room() then return {'outbox-full'} end
  lock_end.acknowledge(row.flight, row.result)
  outbox_publishes.add(row.position, row.publishes)
end)
return respond.make(results, call.lock_end_freed, function() return receiving.add_next(rows, results) end)
