#!lua flags=allow-oom
-- Begin the delivery of a held message: give it and note when, so that it can be finished should whoever asked die (S11).
-- Answers `replayed` for one that is delivered. Several may hold a claim at once: the publish that follows counts once.
-- ARGV: now name
-- RETURNS: ok replayed item-not-found
local record = redis.call('HGET', key.prepared, arg.name)
if record then
  redis.call('ZADD', key.deliveries_begun, clock.now(), arg.name)
  return {'ok', record}
end
if delivered_ids.is_delivered(arg.name) then return {'replayed'} end
return {'item-not-found'}
