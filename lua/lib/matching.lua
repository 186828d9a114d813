-- Who takes what in a partition where subscriptions select, and who would if it had credit here.
-- CALL: whom = {}
local matching = {}

local function free(subscriber)
  return subscriber.held + (subscriber.taking or 0) < subscriber.limit
end

-- Not the one that gave the item back while another who selects it has credit (Q30).
local function taker(subscriber, queue, entry)
  if entry.past.holders[1] ~= subscriber.subid then return subscriber end
  for _, other in ipairs(queue) do
    if other ~= subscriber and free(other) then
      local selector = selectors.get(other.subid)
      if not selector or selectors.selects(selector, entry) then return other end
    end
  end
  return subscriber
end

-- Each in turn takes the next that it selects; gives whether anybody has, and whether anybody would take more.
local function round(queue, count, taken)
  local before, hungry = #taken, false
  for _, subscriber in ipairs(queue) do
    local entry = #taken < count and free(subscriber) and selection.next(subscriber.subid)
    if entry then
      entry.to = taker(subscriber, queue, entry)
      entry.to.taking = (entry.to.taking or 0) + 1
      passed.remove(entry.position)
      taken[#taken + 1] = entry
    elseif free(subscriber) then
      hungry = true
    end
  end
  return #taken > before, hungry
end

-- Whether anything has its place before some of what was passed over.
local function ahead()
  return redis.call('EXISTS', key.ready) == 1
    or call.partition_hinted and (hints.any(hints.first())
      or passed.late() and (call.partition_cursor ~= call.partition_tail or hints.any(hints.last())))
end

-- Takes up to `count` items for those of the queue who select them: `to` is who gets it.
function matching.take(count, queue)
  if passed.over() then return waiting.take(count) end
  local taken, got, hungry = {}, nil, nil
  -- What came back has its place among them.
  while ahead() do
    -- It may be that what came does not go yet, or not any more.
    if not selection.pass() and call.selection_more then return taken end
  end
  repeat
    got, hungry = round(queue, count, taken)
  until #taken == count or not (got or hungry and selection.pass())
  return taken
end

-- Credit that lies elsewhere is wanted by whom, where something waits for them; gives 1 when there is more to look through.
function matching.seek()
  if not (call.partition_selects and (call.partition_several or call.partition_pools)) or call.partition_paused or owner.get() then return 0 end
  local lacking, fed
  -- In a node of several partitions the turns are the coordinator's: nobody has credit here without a grant.
  local local_turns = not call.partition_several
  repeat
    call.matching_whom, lacking, fed = {}, false, 0
    for _, subid in ipairs(selectors.all()) do
      if local_turns and redis.call('ZSCORE', key.turns, subid) then
        fed = fed + 1
      elseif selection.finds(subid) then
        call.matching_whom[#call.matching_whom + 1] = {subid, pools.of(subid) or ''}
      else
        lacking = true
      end
    end
    local others = redis.call('HLEN', key.subscribers) > #selectors.all() 
      and (not local_turns or redis.call('ZCARD', key.turns) == fed)
    if others and passed.after('', '', 1)[1] then
      for pool in string.gmatch('- ' .. (call.partition_pools or ''), '(%S+) %d*') do
        call.matching_whom[#call.matching_whom + 1] = {'*', pool == '-' and '' or pool}
      end
      others = false
    end
  until not (lacking or others) or not selection.pass()
  return call.selection_more and 1 or 0
end
