#!lua flags=allow-oom
-- Remove subscribers; with `release` give back what they hold, a bounded part per call (the row answers how much is left).
-- With `kept` the epoch of what the subscriber owned outlasts it (EX11); with a `reason` it is told that it owns it no more.
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked owners
-- ARGV: now revision frontend sent number retry wants | subid release kept reason
-- RETURNS: ok stale gone deleted | ok not-subscribed
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked owners
--- @include finish leave
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local was = leave.remove(row.subid, row.kept ~= '', row.reason ~= '' and row.reason)
  local left = row.release == '1' and leave.release(row.subid, 'released', 'unavailable') or credit.held(row.subid)
  results[i] = {was and 'ok' or 'not-subscribed', left}
end
return finish.reply(results, disown.notices, math.max(ending.freed, 1))
