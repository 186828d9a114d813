#!lua flags=allow-oom
-- End counts of what subscribers have in other partitions than this one, the bank: the rest of their credit lies here. Answers
-- what the others have too much.
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked selectors passed ranked ends
-- ARGV: now revision frontend sent number retry wants | subid born lent
-- RETURNS: ok stale gone deleted | ok superseded not-subscribed
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked selectors passed ranked ends
--- @include finish counts
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local subscriber = subscriptions.get(row.subid)
  local excess = subscriber and counts.settle(subscriber, row.born, tonumber(row.lent), credit.held(row.subid))
  if not subscriber then
    results[i] = {'not-subscribed'}
  elseif excess then
    ending.touched[row.subid] = ending.touched[row.subid] or 0
    results[i] = {'ok', excess}
  else
    results[i] = {'superseded'}
  end
end
return finish.reply(results, {}, dispatch.LIMIT)
