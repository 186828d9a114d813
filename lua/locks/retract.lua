#!lua flags=allow-oom
-- Acknowledge items for their holders, or delete them for owners and publishers, and hand out items with the freed credit. With
-- `together` all rows or none take effect: the one answer tells the first row that was `refused`, and why. A row with
-- `next`, `MOST LEASE_MS`, is also answered as by `receive` with up to so many items, which are locked after that for its pull subscription.
-- PLAIN: meta log index ready delayed replaced successors outbox locks_to_release subscription_expiry inflight lock_deadlines locks_by_subscriber subscribers ready_subscribers idle_subscribers history journal replays replays_old outbox_items group_of
-- ARGV: now revision frontend number retry together | sender subids owner item token request next
-- RETURNS: ok stale gone deleted wide | ok(holder [collection subid]) replayed(holder) item-not-found forbidden locked-by-another lock-lost
--   refused(row problem) received(outcome@retract items@receive) lease-over
local refusal = partition.load() or plain.check(true)
if refusal then return refusal end
replay_cache.rotate()

-- Answers a row, with the `collection` and the `subid` of a lock that ended.
local function answer(row, holder, collection, subid)
  replay_cache.give(row, holder)
  return collection and {'ok', holder, collection, subid} or holder
end

local decide = arg.together == '' and ack_rules.each or ack_rules.all_or_none
local results = decide(rows, function(row, verdict)
  partition_owner.renew_when_seen(row.subids)
  if verdict == 'held' then
    lock_end.acknowledge(row.flight)
    return answer(row, row.flight.jid, references.describe(row.flight))
  elseif verdict == 'waiting' then
    items.drop(row.position, row.entry)
    group_order.remove(row.position)
    outcomes.note_end(row.position, row.item, 'cancelled', 'deleted', '')
    return answer(row, '')
  elseif verdict == 'replayed' then
    return {'replayed', row.answered}
  end
  return {verdict}
end)
return respond.make(results, call.lock_end_freed, function() return receiving.add_next(rows, results) end)
