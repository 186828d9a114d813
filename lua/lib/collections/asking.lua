-- What a queue asks the collections above it for: subscribers for items that its own have no credit for. `told` in `meta` is when it last
-- asked, and after how long it asks again; `above` there says that there is a collection.
-- CALL: again = false
-- `again`: a collection has just answered, so it is asked for the rest at once.
local asking = {ASK_MS = 2000, LONGEST_MS = 16000, MOST = 200, LOOKED_AT = 8}

-- Returns how many items subscribers without credit here could get, about.
function asking.wanted()
  if partition_owner.get() or call.partition_options.paused or call.dispatch_owed then return 0 end
  if call.partition_options.log_only or not ready_queue.waits() then return 0 end
  local stored = redis.call('XLEN', key.log) - call.partition_kept - redis.call('HLEN', key.inflight)
  if rare_keys.any() then stored = stored - redis.call('ZCARD', key.delayed) end
  local room = call.partition_options.hand_out and hand_out_limits.room() or asking.MOST
  return math.min(asking.MOST, math.max(1, stored), room)
end

-- Returns the last holders of the next items that came back, which are offered to others first, by the subids that a collection knows.
local function last_holders()
  local places = call.partition_options.fair and fair_order.first(asking.LOOKED_AT)
    or redis.call('ZRANGE', key.ready, 0, asking.LOOKED_AT - 1)
  if #places == 0 then return '' end
  local names = redis.call('HMGET', key.history, unpack(places))
  for i, line in ipairs(names) do
    local holder = line and string.match(line, '^%S+ (%d+)')
    names[i] = holder and subscription_ids.collected(holder) or '-'
  end
  return table.concat(names, ' ')
end

-- Asks for the rest at once, because a collection has answered.
function asking.ask_on()
  call.asking_again = true
end

-- Asks the collections above for subscribers: when items begin to wait, when a collection has answered, and again after a while. A word
-- that is lost therefore delays nobody for long.
function asking.ask()
  local meta = call.partition_before
  local count = meta.above and asking.wanted() or 0
  if count == 0 then
    if meta.told then redis.call('HDEL', key.meta, 'told') end
    meta.told = nil
    return
  end
  local at, step = string.match(meta.told or '', '^(%d+) (%d+)$')
  at, step = tonumber(at), tonumber(step)
  if at and not call.asking_again and call.partition_now >= at and call.partition_now < at + step then return end
  step = at and not call.asking_again and math.min(2 * step, asking.LONGEST_MS) or asking.ASK_MS
  meta.told = call.partition_stamp .. ' ' .. string.format('%d', step)
  redis.call('HSET', key.meta, 'told', meta.told)
  notices.tell({'asks', count, call.partition_now, call.partition_options.lock_ms, last_holders()})
end

-- Returns when to ask again: `due` or sooner.
function asking.next(due)
  local at, step = string.match(call.partition_before.told or '', '^(%d+) (%d+)$')
  if not at then return due end
  at = tonumber(at) + tonumber(step)
  return (due == 0 or at < due) and at or due
end
