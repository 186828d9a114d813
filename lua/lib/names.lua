-- What a sender's subscriptions are called in a partition. `subids` are the two that it may have there directly.
-- NEEDS:
--- @include partition
local names = {}

-- Those that there may be, directly and through each pool (see `pools`).
function names.all(subids)
  local found = {}
  for subid in string.gmatch(subids, '%d+') do
    if found[1] ~= subid then found[#found + 1] = subid end
  end
  if not partition.pools then return found end
  local direct = #found
  for offset in string.gmatch(partition.pools, '(%d+):%S+ %d+') do
    for i = 1, direct do
      found[#found + 1] = string.format('%.0f', (tonumber(found[i]) + tonumber(offset)) % 2 ^ 52)
    end
  end
  return found
end
