#!lua flags=no-writes
-- List the locks of each subscriber, earliest deadline first, at most 1,000 each, which is the highest credit.
-- ARGV: now revision | subids
-- RETURNS: ok stale gone deleted | ok(locks(item token attempt deadline_ms))
local refusal = partition.load()
if refusal then return refusal end
local results = budget.each(rows, function(row)
  local places = {}
  for _, subid in ipairs(subscription_ids.all(row.subids)) do
    for _, position in ipairs(held_locks.of(subid, 1000 - #places)) do places[#places + 1] = position end
  end
  local held = {}
  for i, flight in ipairs(inflight.get_many(places)) do
    held[#held + 1] = {flight.item, tonumber(flight.token), attempt_history.count(flight.position, tonumber(flight.attempt)),
      tonumber(redis.call('ZSCORE', key.lock_deadlines, places[i]))}
  end
  table.sort(held, function(a, b) return a[4] < b[4] or (a[4] == b[4] and a[2] < b[2]) end)
  budget.spend(0.6 * #held)
  return {'ok', held}
end)
return respond.results(results)
