-- The order of turns: subscribers with free credit that may get a waiting item, the least recently served first.
local ready_subscribers = {FEW = 20}

local function by_score(subids)
  local scores, found, order = redis.call('ZMSCORE', key.ready_subscribers, unpack(subids)), {}, {}
  for i, subid in ipairs(subids) do
    if scores[i] then
      found[#found + 1] = subid
      order[subid] = tonumber(scores[i])
    end
  end
  table.sort(found, function(a, b)
    if order[a] == order[b] then return a < b end
    return order[a] < order[b]
  end)
  return found
end

function ready_subscribers.all(count, first)
  return redis.call('ZRANGE', key.ready_subscribers, first, first + count - 1)
end

-- Removes the turns of subscribers whose lines somebody has removed with redis-cli.
function ready_subscribers.forget(subids)
  for _, subid in ipairs(subids) do
    budget.spend(0.4)
    redis.call('ZREM', key.ready_subscribers, subid)
  end
end

-- Whether there are subscribers without a selector.
function ready_subscribers.any_unselective()
  return redis.call('HLEN', key.subscribers) > selectors.count()
end

-- Returns those that may get waiting items: subscribers without a selector, and of the others those that have not examined all.
function ready_subscribers.for_waiting(count, first)
  if not call.partition_before.selects then return ready_subscribers.all(count, first) end
  local some, found = selection_progress.all(), {}
  if ready_subscribers.any_unselective() or #some > ready_subscribers.FEW then
    local named = selectors.subids()
    for _, subid in ipairs(ready_subscribers.all(first + count + selectors.count(), 0)) do
      if not named[subid] or selection_progress.mark(subid) then found[#found + 1] = subid end
    end
  elseif #some > 0 then
    found = by_score(some)
  end
  return {unpack(found, first + 1, math.min(#found, first + count))}
end
