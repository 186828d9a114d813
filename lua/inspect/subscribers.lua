#!lua flags=no-writes
-- Show a partition's subscribers: how many items each holds of its credit here, failed deliveries, and its quality of service; those
-- with free credit first, in the order in which they are served. Reads only: Redis refuses a write.
--   redis-cli --eval lua/inspect/subscribers.lua 'sq:{jobs@8e71964d/0}:meta' , 50
local prefix = string.match(KEYS[1] or '', '^(sq:{.+@.+/%d+}:)[%w_]+$')
if not prefix then return redis.error_reply("ERR name a key of the partition, such as 'sq:{jobs@8e71964d/0}:meta'") end
local most = math.min(tonumber(ARGV[1] or 50) or 50, 1000)
local lines = {}
local function selects(subid)
  local _, length, from = string.match(redis.call('HGET', prefix .. 'selectors', subid) or '', '^(%d*) (%d+) ()')
  return length and ' selects ' .. string.sub(redis.call('HGET', prefix .. 'selectors', subid), from, from + length - 1) or ''
end
for _, where in ipairs({'turns', 'resting'}) do
  for _, subid in ipairs(redis.call('ZRANGE', prefix .. where, 0, most - #lines - 1)) do
    local line = redis.call('HGET', prefix .. 'subscribers', subid)
    if line and #lines < most then
      local credit, bounces, qos, length, jid = string.match(line, '^(%d+) (%d+) (%a+):?(%d*) (.*)$')
      -- Of one that comes through a collection the pool follows the JID.
      if length ~= '' then jid = string.sub(jid, 1, length) .. ' through ' .. string.match(string.sub(jid, length + 2), '^%d+:(.*)$') end
      lines[#lines + 1] = string.format('%d of %s, %s bounces, %s, ', redis.call('ZCOUNT', prefix .. 'held', subid, subid),
        credit, bounces, qos) .. jid .. selects(subid)
    end
  end
end
return lines
