#!lua flags=allow-oom
-- End locks by an owner's command: those of the named items, or all locks of a subscriber, a bounded part per call. Returns how many have
-- ended and how many the subscriber has left. The holders get a notice, and their tokens are void.
-- ARGV: now revision frontend number retry subid | item
-- RETURNS: ok(count left) stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local CHUNK, ids, wanted = 300, {}, {}
local holders = subscription_ids.all(arg.subid)
for i, row in ipairs(rows) do
  ids[i], wanted[row.item] = row.item, true
end
local places = {}
if arg.subid ~= '' then
  for _, subid in ipairs(holders) do
    for _, position in ipairs(held_locks.of(subid, CHUNK - #places)) do places[#places + 1] = position end
  end
else
  for _, position in ipairs(items.positions_of(ids)) do places[#places + 1] = position or nil end
end
local tried = 0
for _, flight in ipairs(inflight.get_many(places)) do
  if tried > 0 and budget.exhausted() then break end
  tried = tried + 1
  -- Once each, even if a row repeats an id.
  if flight and (arg.subid ~= '' or wanted[flight.item]) then
    wanted[flight.item] = nil
    lock_end.release(flight, 'released', {reason = 'forced', delay_ms = 0})
    notices.tell({'ended', flight.jid, flight.item, tonumber(flight.token), references.describe(flight)})
  end
end
write_buffer.flush()
local left = arg.subid == '' and #places - tried or 0
for _, subid in ipairs(holders) do left = left + credit.lock_count(subid) end
return respond.make({call.lock_end_freed, left}, call.lock_end_freed)
