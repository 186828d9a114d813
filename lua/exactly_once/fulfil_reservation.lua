#!lua
-- Bring the message whose id was reserved, and begin its delivery as `begin_delivery` does: the first body counts, a copy of it is
-- answered alike whenever it comes within the window, and another body is refused (RX1).
-- ARGV: now source_bytes total_bytes remembered name record
-- RETURNS: ok replayed item-not-found reservation-expired reservation-used too-much-held
local now = clock.now()
local there, digest = redis.call('HGET', key.assured, arg.name), marks.digest(arg.record)
if not there and marks.stands(arg.name) then
  if marks.knows(arg.name, digest) then return {'replayed'} end
  return {'reservation-used'}
end
if not there or there == held.EMPTY then
  local until_ms = string.match(arg.name, 'r(%d+)%-%x+$')
  if until_ms and tonumber(until_ms) <= now then return {'reservation-expired'} end
  if not there then return {'item-not-found'} end
  local size = #arg.record - #there
  -- It has its place among the messages already: the bytes are what is new.
  if not quota.bears(arg.name, size) or marks.count() >= tonumber(arg.remembered) then return {'too-much-held'} end
  held.drop(arg.name, there)
  held.keep(now, arg.name, arg.record)
  there = arg.record
elseif marks.digest(there) ~= digest then
  return {'reservation-used'}
end
redis.call('ZADD', key.claims, now, arg.name)
return {'ok', there}
