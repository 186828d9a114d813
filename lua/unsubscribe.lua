#!lua flags=allow-oom
-- Remove subscribers; with `release` give back what they hold, a bounded part per call (the row answers how much is left).
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked
-- ARGV: now revision frontend sent number retry wants | subid release
-- RETURNS: ok stale gone deleted | ok not-subscribed
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked
--- @include finish leave
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local was = leave.remove(row.subid)
  local left = row.release == '1' and leave.release(row.subid, 'released', 'unavailable') or credit.held(row.subid)
  results[i] = {was and 'ok' or 'not-subscribed', left}
end
return finish.reply(results, {}, math.max(ending.freed, 1))
