#!lua
-- Add subscribers or change what they asked for; `must` says that the subscription has to exist already, and may leave
-- `qos` as it is.
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding
-- ARGV: now revision frontend sent number retry max_subscribers | subid jid credit qos must
-- RETURNS: ok stale gone deleted | ok not-subscribed too-many-subscriptions
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding
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
    if row.must == '' then
      -- Who read until now works from now on.
      window.forget(row.subid)
      if not redis.call('ZSCORE', key.turns, row.subid) then redis.call('ZADD', key.resting, 'NX', 0, row.subid) end
    end
    local qos = row.qos ~= '' and row.qos or subscriber.qos
    subscriptions.put({subid = row.subid, jid = row.jid, limit = tonumber(row.credit), bounces = 0, qos = qos})
    local reader = readers.get(row.subid)
    if reader then window.settle(reader) end
    if qos ~= 'unacknowledged' then partition.turn_on('confirms') end
    ending.touched[row.subid] = true
    results[i] = {'ok', row.credit, qos}
  end
end
return finish.reply(results, {}, dispatch.LIMIT)
