#!lua flags=allow-oom
-- Begin the delivery of a prepared message: return it and record the time, so that another frontend can finish if this one dies (S11). A
-- delivered message answers `replayed`. Several may begin at once: the publish that follows counts once. The message is held for a window
-- from the first time on: if it was published, it is not forgotten before that is recorded.
-- ARGV: now name
-- RETURNS: ok(record) replayed item-not-found
local record = redis.call('HGET', key.prepared, arg.name)
if record then
  local now = clock.now()
  if redis.call('ZADD', key.deliveries_begun, now, arg.name) == 1 then redis.call('ZADD', key.prepared_since, now, arg.name) end
  return {'ok', record}
end
if delivered_ids.is_delivered(arg.name) then return {'replayed'} end
return {'item-not-found'}
