-- Decides which subscriber gets which item where subscriptions have selectors.
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
  if call.partition_options.fair then return false end
  return redis.call('EXISTS', key.ready) == 1
    or call.partition_before.hinted and (scheduling.has_ranks(0, scheduling.USUAL - 1) or skipped_items.has_low_priority()
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
