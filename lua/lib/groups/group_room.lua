-- How many groups may have a record in a partition.
local group_room = {MOST = 1000}

-- Whether a group has a record in a hash, or one more may have; removes those that are not `valid` any more if that is needed.
function group_room.has(hash, group, valid)
  if redis.call('HEXISTS', hash, group) == 1 or redis.call('HLEN', hash) < group_room.MOST then return true end
  local names = redis.call('HKEYS', hash)
  budget.spend(#names / 10)
  for _, name in ipairs(names) do
    if not valid(name) then redis.call('HDEL', hash, name) end
  end
  return redis.call('HLEN', hash) < group_room.MOST
end
