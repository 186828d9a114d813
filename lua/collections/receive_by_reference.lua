#!lua flags=allow-oom
-- Lock items for subscribers of a collection, one under each reference, and send them. What the queue's own subscribers can take goes to
-- them first. Returns for each row `locked`, `unused`, or `passed`, if the queue does not admit the subscriber (`admitted` is empty). A
-- reference is used once, and in the three seconds before the queue's time `deadline`: an earlier time shows that its clock went back
-- since it asked. `first` is the subid of the JID's first subscription.
-- ARGV: now revision frontend number retry | reference subid first jid sending collection whose deadline admitted
-- RETURNS: ok(*words) stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local results, asked, known = {}, {}, {}
local open = call.caller_sends and not partition_owner.get() and not call.partition_options.paused
for i, row in ipairs(rows) do
  if row.admitted == '' then
    results[i] = 'passed'
  elseif references.position(row.reference) then
    results[i] = 'locked'
  elseif not open or references.is_late(row.deadline) then
    results[i] = 'unused'
  else
    local of = row.subid .. ' ' .. row.sending .. ' ' .. row.whose .. ' ' .. row.collection
    local subscriber = known[of]
    if not subscriber then
      local qos, batch = subscriptions.parse_sending(row.sending)
      subscriber = {subid = subscription_ids.collected(row.subid), first = subscription_ids.collected(row.first), jid = row.jid,
        qos = qos, batch = batch, limit = 0, held = 0, bounces = 0, collection = row.collection, whose = row.whose, references = {}}
      if subscriptions.confirms(subscriber) then partition.turn_on('confirms') end
      known[of], asked[#asked + 1] = subscriber, subscriber
    end
    table.insert(subscriber.references, 1, row.reference)
    subscriber.limit = subscriber.limit + 1
  end
end
asking.ask_on()
return respond.make(nil, #rows, function(deliveries)
  dispatch.by_reference(asked, deliveries)
  local left = {}
  for _, subscriber in ipairs(asked) do
    for _, name in ipairs(subscriber.references) do left[name] = true end
  end
  for i, row in ipairs(rows) do results[i] = results[i] or left[row.reference] and 'unused' or 'locked' end
  return results
end)
