#!lua flags=allow-oom
-- Remove subscribers; with `release` give back what they hold, a bounded part per call (the row answers how much is left).
-- With `born` it is part of that count of a pool, and belongs to no earlier one afterwards: nothing of the subscriber's lies here.
-- With `lapsed` only if the lease is over still. With `kept` the epoch of what the subscriber owned outlasts it (EX11); with a
-- `reason` it is told that it owns it no more.
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked owners leases selectors passed
-- ARGV: now revision frontend sent number retry wants | subid release kept reason lapsed born
-- RETURNS: ok stale gone deleted | ok not-subscribed superseded
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked owners leases selectors passed
--- @include finish leave leases counts
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local counted = {subid = row.subid, pool = ''}
  local over = row.lapsed ~= '1' or not subscriptions.get(row.subid) or leases.ended(row.subid)
  if not over or (row.born ~= '' and not counts.join(counted, row.born)) then
    results[i] = {'superseded'}
  else
    local was = leave.remove(row.subid, row.kept ~= '', row.reason ~= '' and row.reason)
    local left = row.release == '1' and leave.release(row.subid, 'released', row.lapsed == '1' and 'lapsed' or 'unavailable')
      or credit.held(row.subid)
    if row.born ~= '' then shares.write(counted, {born = row.born}) end
    results[i] = {was and 'ok' or 'not-subscribed', left}
  end
end
return finish.reply(results, disown.notices, math.max(ending.freed, 1))
