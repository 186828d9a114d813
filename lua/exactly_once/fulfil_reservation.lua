#!lua
-- Store the message of a reserved id, and begin its delivery as `begin_delivery` does. The first body counts: a copy gets the same answer
-- within the window, another body is refused (RX1). With `if_replayed` nothing is stored and no delivery begins: a first body is `held`.
-- ARGV: now source_bytes total_bytes remembered if_replayed name record
-- RETURNS: ok(record) replayed held item-not-found reservation-expired reservation-used too-much-held
local now = clock.now()
local there, digest = redis.call('HGET', key.prepared, arg.name), delivered_ids.digest(arg.record)
if not there and delivered_ids.is_delivered(arg.name) then
  if delivered_ids.has(arg.name, digest) then return {'replayed'} end
  return {'reservation-used'}
end
if arg.if_replayed == '1' then return {'held'} end
if not there or there == prepared_messages.EMPTY then
  local until_ms = string.match(arg.name, 'r(%d+)%-%x+$')
  if until_ms and tonumber(until_ms) <= now then return {'reservation-expired'} end
  if not there then return {'item-not-found'} end
  local size = #arg.record - #there
  -- The reservation already counts as a message: only the additional bytes are checked.
  if not prepared_quota.has_bytes(arg.name, size) or delivered_ids.count() >= tonumber(arg.remembered) then return {'too-much-held'} end
  prepared_messages.drop(arg.name, there)
  prepared_messages.keep(now, arg.name, arg.record)
  there = arg.record
elseif delivered_ids.digest(there) ~= digest then
  return {'reservation-used'}
end
redis.call('ZADD', key.deliveries_begun, now, arg.name)
return {'ok', there}
