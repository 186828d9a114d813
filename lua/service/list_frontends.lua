#!lua flags=no-writes
-- List the frontends: how many ms ago each sent a heartbeat, and who has disconnected it, if somebody has; then how long ago that was.
-- ARGV: now
-- RETURNS: ok(frontends(name ago_ms by))
local now = clock.now()
local beats = redis.call('ZRANGE', key.frontends, 0, 999, 'WITHSCORES')
local rows = {}
for i = 1, #beats, 2 do
  local at, by = string.match(redis.call('HGET', key.disconnected, beats[i]) or beats[i + 1], '^(%d+) ?(.*)$')
  rows[#rows + 1] = {beats[i], now - tonumber(at), by}
end
return {'ok', rows}
