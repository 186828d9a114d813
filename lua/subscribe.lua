#!lua
-- Add subscribers or change what they asked for; `must` says that the subscription has to exist already, and may leave
-- `qos` as it is.
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries
-- ARGV: now revision frontend sent number retry max_subscribers | subid jid credit qos must
-- RETURNS: ok stale gone deleted | ok not-subscribed too-many-subscriptions
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries
--- @include finish newcomers
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  if row.must == '1' and not subscriptions.get(row.subid) then
    results[i] = {'not-subscribed'}
  elseif not newcomers.room(row.subid) then
    results[i] = {'too-many-subscriptions'}
  else
    if partition.owner then owner.met(row.subid .. ' ' .. row.subid) end
    results[i] = {'ok', row.credit, newcomers.seat(row)}
  end
end
return finish.reply(results, {}, dispatch.LIMIT)
