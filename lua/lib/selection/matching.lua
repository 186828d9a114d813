-- Which subscriber gets which item where subscriptions have selectors, and who would get some with credit here.
-- CALL: whom = nil
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
  local before, unserved = #taken, false
  for _, subscriber in ipairs(queue) do
    local entry = #taken < count and free(subscriber) and selection.next(subscriber.subid)
    if entry then
      entry.to = taker(subscriber, queue, entry)
      entry.to.taking = (entry.to.taking or 0) + 1
      skipped_items.remove(entry.position)
      taken[#taken + 1] = entry
    elseif free(subscriber) then
      unserved = true
    end
  end
  return #taken > before, unserved
end

-- Whether anything has its place before some of what was passed over.
local function ahead()
  return redis.call('EXISTS', key.ready) == 1
    or call.partition_hinted and (scheduling.has_ranks(scheduling.first_ranks())
      or skipped_items.has_low_priority() and (call.partition_cursor ~= call.partition_tail or scheduling.has_ranks(scheduling.last_ranks())))
end

-- Takes up to `count` items for those who select them, or take whatever comes: `to` is who gets it. `candidates` gives those who have
-- to be asked; what is passed over makes them more. Gives all who were asked, too; nothing without credit.
function matching.take(count, candidates)
  local known, everybody, taken, got = {}, {}, {}, nil
  local function asked()
    -- One more than items, so that a releaser can be avoided; of those who select, all.
    local queue = candidates(count + 1 + selectors.count())
    for i, subscriber in ipairs(queue) do
      if not known[subscriber.subid] then
        known[subscriber.subid], everybody[#everybody + 1], subscriber.taking = subscriber, subscriber, nil
      end
      queue[i] = known[subscriber.subid]
    end
    return queue
  end
  local queue = asked()
  -- Who is not asked may be as soon as something comes that it selects.
  local unserved, others, passes = nil, credit.anybody(), nil
  if #queue == 0 and (queue.cut or not others) then return nil end
  -- What came back has its place among them.
  while ahead() do
    -- It may be that what came does not go yet, or not any more.
    passes = selection.pass()
    if not passes and call.selection_more then return taken, everybody end
  end
  repeat
    if passes then queue = asked() end
    -- Behind those who are asked is somebody who has to be sent to: so each of them gets one item.
    if queue.cut then count, others = math.min(count, #taken + #queue), false end
    got, unserved = round(queue, count, taken)
    passes = #taken < count and not got and (unserved or others) and selection.pass()
  until #taken >= count or not (got or passes)
  return taken, everybody
end

-- Credit that lies elsewhere is wanted by whom, where something waits for them; gives 1 when there is more to look through.
function matching.find_demand()
  local shares = call.partition_several or call.partition_pools
  if not (call.partition_selects and shares) or call.partition_paused or partition_owner.get() then return 0 end
  -- In a node of several partitions the turns are the coordinator's: nobody has credit here without a grant.
  local local_turns, lacking = not call.partition_several, nil
  local fed = local_turns and redis.call('ZCARD', key.ready_subscribers) or 0
  repeat
    call.matching_whom = {}
    for _, subid in ipairs(selection_progress.all()) do
      if not (local_turns and redis.call('ZSCORE', key.ready_subscribers, subid)) and selection.has_match(subid) then
        call.matching_whom[#call.matching_whom + 1] = {subid, pools.of(subid) or ''}
      end
    end
    lacking = #call.matching_whom + fed < selectors.count()
    local others = ready_subscribers.any_unselective() and not (local_turns and ready_subscribers.any_unselective_here())
    if others and skipped_items.after('', '', 1)[1] then
      for pool in string.gmatch('- ' .. (call.partition_pools or ''), '(%S+) %d*') do
        call.matching_whom[#call.matching_whom + 1] = {'*', pool == '-' and '' or pool}
      end
      others = false
    end
  until not (lacking or others) or not selection.pass()
  return call.selection_more and 1 or 0
end
