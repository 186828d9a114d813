#!lua
-- Make subscriptions known in a partition that is not the bank, as part of a count: what lies here stays, and a new one has
-- what it still holds. Answers what counts as its part, which is what it holds when that is more than its credit here, and
-- whether it is; `forgive` makes it its credit then. One that comes through a collection names the pool that counts it;
-- `several`: it is not its JID's first.
-- KEYS: meta inflight held subscribers turns resting sent readers reading outstanding shares owners selectors passed ranked ends delayed
-- ARGV: now revision number | subid jid qos born forgive pool several selector
-- RETURNS: ok stale gone deleted | ok superseded
-- WRITES: meta subscribers turns resting readers reading outstanding shares owners selectors passed
--- @include counts enrol credit disown passed
local refusal = partition.load()
if refusal then return refusal end
local results, owned, pooled = {}, owner.get(), 0
for i, row in ipairs(rows) do
  local known, held = enrol.known(row.subid), credit.held(row.subid)
  local subscriber = known or {subid = row.subid, jid = row.jid, bounces = 0, pool = row.pool ~= '' and row.pool or nil}
  -- An owner's credit ends with what it owns.
  if not known or owned and owned.subid == row.subid then subscriber.limit = held end
  local part = math.max(subscriber.limit, held)
  if row.forgive ~= '' then subscriber.limit = part end
  if counts.join(subscriber, row.born) then
    disown.of(row.subid, false)
    subscriber.qos = row.qos
    enrol.put(subscriber, not known)
    passed.choose(row.subid, row.selector)
    if row.several ~= '' then partition.turn_on('multi') end
    credit.settle(row.subid)
    if row.pool ~= '' then pooled = 1 end
    results[i] = {'ok', part, part > subscriber.limit and 1 or 0}
  else
    results[i] = {'superseded'}
  end
end
-- What waited for an owner is for all now, and what waits here for those who come through a collection is to be told: the
-- caller is to run `expire`.
return {'ok', results, {}, {}, {}, 0, owned and not owner.get() and 1 or pooled, partition.token}
