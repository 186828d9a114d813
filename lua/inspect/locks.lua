#!lua flags=no-writes
-- Show a partition's locks, the one that ends next first: ms left, token, attempt, item, holder. Reads only.
--   redis-cli --eval lua/inspect/locks.lua 'sq:{jobs@8e71964d/0}:meta' , 20
local prefix = string.match(KEYS[1] or '', '^(sq:{.+@.+/%d+}:)[%w_]+$')
if not prefix then return redis.error_reply("ERR name a key of the partition, such as 'sq:{jobs@8e71964d/0}:meta'") end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = redis.call('ZRANGE', prefix .. 'deadlines', 0, math.min(tonumber(ARGV[1] or 20) or 20, 1000) - 1, 'WITHSCORES')
local lines = {}
for i = 1, #ends, 2 do
  local line = redis.call('HGET', prefix .. 'inflight', ends[i])
  if line then
    local token, attempt, length, rest =
      string.match(line, '^[^ ]+ [^ ]+ ([^ ]+) ([^ ]+) [^ ]+ [^ ]+ [^ ]+ [^ ]+ ([^ ]+) (.*)$')
    lines[#lines + 1] = string.format('%d ms, token %s, attempt %s, ', tonumber(ends[i + 1]) - now, token, attempt)
      .. string.sub(rest, tonumber(length) + 2) .. ', ' .. string.sub(rest, 1, tonumber(length))
  end
end
return lines
