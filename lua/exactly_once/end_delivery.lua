#!lua flags=allow-oom
-- End the delivery of a held message: it goes, and with `delivered` a mark of it stays. The nonce tells it from another
-- message that has come under its name since.
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
