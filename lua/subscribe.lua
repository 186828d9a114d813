#!lua
-- Add subscribers or change their credit; `must` says that the subscription has to exist already.
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal
-- ARGV: now revision frontend sent number max_subscribers | subid jid credit must
-- RETURNS: ok stale gone deleted | ok not-subscribed too-many-subscriptions
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal
--- @include finish
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local subscriber = subscriptions.get(row.subid)
  if not subscriber and row.must == '1' then
    results[i] = {'not-subscribed'}
  elseif not subscriber and redis.call('HLEN', key.subscribers) >= tonumber(arg.max_subscribers) then
    results[i] = {'too-many-subscriptions'}
  else
    if not subscriber then redis.call('ZADD', key.resting, 0, row.subid) end
    subscriptions.put({subid = row.subid, jid = row.jid, limit = tonumber(row.credit), bounces = 0})
    ending.touched[row.subid] = true
    results[i] = {'ok', row.credit}
  end
end
return finish.reply(results, {}, dispatch.LIMIT)
