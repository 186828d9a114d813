#!lua flags=no-writes
-- Show the frontends and how long ago each was last heard of; over five seconds is dead. Reads only: Redis refuses a write.
--   redis-cli --eval lua/inspect/frontends.lua 'sq:{service}:frontends'
if not KEYS[1] then return redis.error_reply("ERR name the key: 'sq:{service}:frontends'") end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local beats = redis.call('ZRANGE', KEYS[1], 0, 999, 'WITHSCORES')
local lines = {}
for i = 1, #beats, 2 do
  local heard = beats[i + 1] == '0' and 'disconnected, ' or string.format('%d ms ago, ', now - tonumber(beats[i + 1]))
  lines[#lines + 1] = heard .. beats[i]
end
return lines
