#!lua flags=allow-oom
-- Put credit of subscribers into this partition that was taken out of another, and hand out what it allows. What belongs to an
-- earlier count is dropped: the count that followed has missed it, and gives it back.
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked selectors passed ranked ends
-- ARGV: now revision frontend sent number retry wants | subid born amount
-- RETURNS: ok stale gone deleted | ok superseded not-subscribed
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked selectors passed ranked ends
--- @include finish allotments
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local put = allotments.deposit(subscriptions.get(row.subid), row.born, tonumber(row.amount))
  results[i] = put and {'ok'} or put == false and {'superseded'} or {'not-subscribed'}
end
return finish.reply(results, {}, dispatch.LIMIT)
