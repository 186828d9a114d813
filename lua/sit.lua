#!lua
-- Make subscriptions known in a partition that is not the bank, as part of a count: what lies here stays, and a new one has
-- what it still holds. Answers how much that is.
-- KEYS: meta inflight held subscribers turns resting sent readers reading outstanding shares owners
-- ARGV: now revision number | subid jid qos born
-- RETURNS: ok stale gone deleted | ok superseded
-- WRITES: meta subscribers resting readers reading outstanding shares owners
--- @include counts enrol credit disown
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local known = enrol.known(row.subid)
  local subscriber = known or {subid = row.subid, jid = row.jid, limit = credit.held(row.subid), bounces = 0}
  if counts.join(subscriber, row.born) then
    disown.of(row.subid, false)
    subscriber.qos = row.qos
    enrol.put(subscriber, not known)
    results[i] = {'ok', subscriber.limit}
  else
    results[i] = {'superseded'}
  end
end
return {'ok', results, {}, {}, {}, 0, 0, partition.token}
