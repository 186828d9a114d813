-- The first positions of a partition at which items stand, in order.
-- NEEDS: log ready delayed deadlines handover
--- @include partition positions ordering
local standing = {}

-- As long as nothing is kept that is done, these are the first entries of the log. Else they are looked for where items
-- stand, so many in each place, and then past the cursor.
function standing.first(count)
  local found = {}
  local function log(from, to)
    for _, raw in ipairs(redis.call('XRANGE', key.log, from, to, 'COUNT', count)) do found[#found + 1] = raw[1] end
  end
  if partition.kept == 0 or partition.log_only then
    log('-', '+')
    return found
  end
  for _, name in ipairs({key.ready, key.delayed, key.deadlines}) do
    for _, position in ipairs(redis.call('ZRANGE', name, 0, count - 1)) do found[#found + 1] = position end
  end
  local dying = redis.call('HSCAN', key.handover, 0, 'COUNT', count)[2]
  for i = 1, #dying, 2 do found[#found + 1] = dying[i] end
  for _, position in ipairs(ordering.waiting(count)) do found[#found + 1] = position end
  table.sort(found, function(a, b) return positions.after(b, a) end)
  if #found < count then log('(' .. partition.cursor, '+') end
  return found
end
