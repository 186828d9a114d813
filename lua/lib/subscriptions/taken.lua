-- Which subscriptions a JID has here; `subid` is the name of its first one.
local taken = {}

-- Parts the names that they may have into those that are taken and those that are free.
function taken.of(subid)
  local family, those, free = names.family(subid), {}, {}
  local lines = redis.call('HMGET', key.subscribers, unpack(family))
  for i, each in ipairs(family) do
    local among = lines[i] and those or free
    among[#among + 1] = each
  end
  return those, free
end
