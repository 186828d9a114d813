-- The one clock: Redis's, read once a script (guarantee 5); a test gives its own time.
-- NEEDS:
local clock = {}

function clock.now()
  if arg.now ~= '' then return tonumber(arg.now) end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
