#!lua
-- Let subscribers read the log from where `start` says, without consuming anything; without a `start` they are known here
-- and read elsewhere.
-- ARGV: now revision frontend sent number retry max_subscribers | subid jid credit start lease
-- RETURNS: ok stale gone deleted | ok too-many-subscriptions offset-not-found lease-over
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

local results = budget.each(rows, function(row)
  local position, gap = nil, 0
  if row.start ~= '' then position, gap = start.resolve(row.start) end
  if row.start ~= '' and not position then return {'offset-not-found'} end
  if not subscriptions.get(row.subid) and redis.call('HLEN', key.subscribers) >= tonumber(arg.max_subscribers) then
    return {'too-many-subscriptions'}
  end
  if leases.over(row.lease) then return {'lease-over'} end
  begin(row, position)
  -- The first partition alone knows until when.
  return {'ok', gap, position or '', arg.number == '0' and leases.put(row.subid, row.lease) or 0}
end)
local reply = finish.reply(results, {}, 0)
reply[6] = leases.next(reply[6])
return reply
