#!lua flags=allow-oom
-- End the delivery of a held message: it goes, and with `delivered` a mark of it stays. The nonce tells it from another
-- message that has come under its name since.
-- KEYS: assured assured_since assured_names assured_bytes claims delivered delivered_old
-- ARGV: now window_ms name nonce delivered
-- RETURNS: ok
-- WRITES: assured assured_since assured_names assured_bytes claims delivered delivered_old
--- @include clock held marks
local record = redis.call('HGET', key.assured, arg.name)
if record and string.match(record, '^%S+') == arg.nonce then
  held.drop(arg.name, record)
  if arg.delivered == '1' then
    marks.remember(clock.now(), tonumber(arg.window_ms), arg.name, marks.digest(record))
  end
end
return {'ok'}
