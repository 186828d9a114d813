#!lua
-- Let subscribers read the log from where `start` says, without consuming anything; without a `start` they are known here
-- and read elsewhere.
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked owners
-- ARGV: now revision frontend sent number retry wants max_subscribers | subid jid credit start
-- RETURNS: ok stale gone deleted | ok too-many-subscriptions offset-not-found
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent journal unconfirmed retries readers reading outstanding shares heads keyed blocked owners
--- @include finish start leave
local refusal = partition.load()
if refusal then return refusal end

-- Whoever worked here, or owned this, does so no more; what it holds it keeps until its locks end.
local function begin(row, position)
  disown.of(row.subid, false)
  leave.stop_working(row.subid)
  window.forget(row.subid)
  subscriptions.put({subid = row.subid, jid = row.jid, limit = tonumber(row.credit), bounces = 0, qos = 'stream'})
  if not position then return end
  partition.turn_on('streams')
  window.settle({subid = row.subid, position = position, committed = position, owed = {}})
end

local results = {}
for i, row in ipairs(rows) do
  local position, gap = nil, 0
  if row.start ~= '' then position, gap = start.resolve(row.start) end
  if row.start ~= '' and not position then
    results[i] = {'offset-not-found'}
  elseif not subscriptions.get(row.subid) and redis.call('HLEN', key.subscribers) >= tonumber(arg.max_subscribers) then
    results[i] = {'too-many-subscriptions'}
  else
    begin(row, position)
    results[i] = {'ok', gap, position or ''}
  end
end
return finish.reply(results, {}, 0)
