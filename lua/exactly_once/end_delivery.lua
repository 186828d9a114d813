#!lua flags=allow-oom
-- End the delivery of a prepared message: remove it, and with `delivered` remember its id. The nonce tells it from a newer message of the
-- same name.
-- ARGV: now window_ms name nonce delivered
-- RETURNS: ok
local record = redis.call('HGET', key.prepared, arg.name)
if record and string.match(record, '^%S+') == arg.nonce then
  prepared_messages.drop(arg.name, record)
  if arg.delivered == '1' then
    delivered_ids.remember(clock.now(), tonumber(arg.window_ms), arg.name, delivered_ids.digest(record))
  end
end
return {'ok'}
