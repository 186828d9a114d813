#!lua flags=allow-oom
-- Subscribe log readers from `start` on; they consume nothing. Without a `start` they are only registered here and read elsewhere.
-- ARGV: now revision frontend number retry max_subscribers | subid jid credit start lease
-- RETURNS: ok stale gone deleted | ok(gap position until_ms) too-many-subscriptions offset-not-found lease-over
local refusal = partition.load()
if refusal then return refusal end

-- A former consumer or owner stops being one. Its locks stay until they end.
local function begin(row, position)
  ownership_loss.end_of(row.subid, false)
  unsubscribing.stop_working(row.subid)
  reader_window.forget(row.subid)
  subscriptions.put({subid = row.subid, jid = row.jid, limit = tonumber(row.credit), bounces = 0, qos = 'stream'})
  if not position then return end
  partition.turn_on('streams')
  reader_window.save({subid = row.subid, position = position, committed = position, owed = {}}, position)
end

local results = budget.each(rows, function(row)
  local known, reads = subscriptions.get(row.subid), row.start ~= ''
  local position, gap = nil, 0
  if reads then position, gap = start_position.resolve(row.start) end
  if reads and not position then return {'offset-not-found'} end
  if not known and redis.call('HLEN', key.subscribers) >= tonumber(arg.max_subscribers) then
    return {'too-many-subscriptions'}
  end
  if subscription_expiry.would_be_over(row.lease) then return {'lease-over'} end
  begin(row, position)
  -- Only the first partition knows the expiry.
  return {'ok', gap, position or '', arg.number == '0' and subscription_expiry.put(row.subid, row.lease) or 0}
end)
local reply = respond.make(results, 0)
reply[respond.DUE] = subscription_expiry.next(reply[respond.DUE])
return reply
