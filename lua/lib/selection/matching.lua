-- Decides which subscriber gets which item where subscriptions have selectors, and which subscribers could get one with credit here.
-- CALL: whom = nil
local matching = {}

local function free(subscriber)
  return subscriber.held + (subscriber.taking or 0) < subscriber.limit
end

-- Another subscriber with credit that selects the item is preferred to its last holder (Q30).
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

-- Each subscriber in turn takes the next item that it selects. Returns whether any did, and whether any would take more.
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

-- Whether any waiting item comes before some of the skipped ones. Of a fair order none does: the skipped ones have had their turn.
local function has_earlier()
  if call.partition_before.fair then return false end
  return redis.call('EXISTS', key.ready) == 1
    or call.partition_hinted and (scheduling.has_ranks(0, scheduling.USUAL - 1) or skipped_items.has_low_priority()
      and (call.partition_cursor ~= call.partition_tail or scheduling.has_ranks(scheduling.USUAL + 1, scheduling.LAST)))
end

-- Takes up to `count` items for subscribers whose selectors match, or that have none: `to` is the subscriber. `candidates` returns the
-- subscribers to try; skipping items makes them more. Also returns all that were tried; nil without credit.
function matching.take(count, candidates)
  local known, everybody, taken, got = {}, {}, {}, nil
  local function asked()
    -- One more than items, so that the last holder of an item can be avoided; and all that have a selector.
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
  -- A subscriber that is not tried now may be tried as soon as an item comes that it selects.
  local unserved, others, passes = nil, credit.anybody(), nil
  if #queue == 0 and not others then return nil end
  -- Items that came back belong among the skipped ones.
  while has_earlier() do
    -- It may be that such an item is delayed or has expired.
    passes = selection.pass()
    if not passes and call.selection_more then return taken, everybody end
  end
  repeat
    if passes then queue = asked() end
    got, unserved = round(queue, count, taken)
    passes = #taken < count and not got and (unserved or others) and selection.pass()
  until #taken >= count or not (got or passes)
  return taken, everybody
end

-- Finds subscribers whose credit is elsewhere and for whom an item waits; returns 1 when there is more to search.
function matching.find_demand()
  local shares = call.partition_several or call.partition_pools
  if not (call.partition_selects and shares) or call.partition_paused or partition_owner.get() then return 0 end
  -- In a node of several partitions the coordinator has the turns: nobody has credit here without a grant.
  local local_turns, lacking = not call.partition_several, nil
  local fed = local_turns and redis.call('ZCARD', key.ready_subscribers) or 0
  repeat
    call.matching_whom = {}
    for _, subid in ipairs(selection_progress.all()) do
      local subscriber = not (local_turns and redis.call('ZSCORE', key.ready_subscribers, subid)) and subscriptions.get(subid)
      if subscriber and not subscriptions.pulls(subscriber) and selection.has_match(subid) then
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
